"""The sources that the report cites, by key; the list is printed in this order."""

REFERENCES = {
    "rational": "A. I. Aptekarev, *Sharp constants for rational approximations of analytic "
    "functions*, Sbornik Mathematics 193, 2002.",
    "blanchard": "P. Blanchard, D. J. Higham and N. J. Higham, *Accurately Computing the "
    "Log-Sum-Exp and Softmax Functions*, IMA J. Numerical Analysis 41, 2021.",
    "scatterbrain": "B. Chen, T. Dao, E. Winsor, Z. Song, A. Rudra and C. Ré, *Scatterbrain: "
    "Unifying Sparse and Low-rank Attention Approximation*, NeurIPS 2021.",
    "candes": "E. J. Candès, X. Li, Y. Ma and J. Wright, *Robust Principal Component Analysis?*, "
    "J. ACM 58, 2011.",
    "performer": "K. Choromanski et al., *Rethinking Attention with Performers*, ICLR 2021.",
    "hybrid": "K. Choromanski et al., *Hybrid Random Features*, ICLR 2022.",
    "smyrf": "G. Daras, N. Kitaev, A. Odena and A. G. Dimakis, *SMYRF: Efficient Attention using "
    "Asymmetric Clustering*, NeurIPS 2020.",
    "states": "P. Dewilde and A.-J. van der Veen, *Time-Varying Systems and Computations*, "
    "Kluwer 1998.",
    "eckart": "C. Eckart and G. Young, *The Approximation of One Matrix by Another of Lower Rank*, "
    "Psychometrika 1, 1936.",
    "halko": "N. Halko, P.-G. Martinsson and J. A. Tropp, *Finding Structure with Randomness*, "
    "SIAM Review 53, 2011.",
    "indyk": "P. Indyk and R. Motwani, *Approximate Nearest Neighbors*, STOC 1998.",
    "squared": "P. Kacham, V. Mirrokni and P. Zhong, *PolySketchFormer: Fast Transformers via "
    "Sketching Polynomial Kernels*, ICML 2024.",
    "kar": "P. Kar and H. Karnick, *Random Feature Maps for Dot Product Kernels*, AISTATS 2012.",
    "reformer": "N. Kitaev, Ł. Kaiser and A. Levskaya, *Reformer: The Efficient Transformer*, "
    "ICLR 2020.",
    "tables": "V. Likhosherstov et al., *Chefs' Random Tables: Non-Trigonometric Random Features*, "
    "NeurIPS 2022.",
    "dense": "V. Likhosherstov et al., *FAVOR#: Sharp Attention Kernel Approximations via New "
    "Classes of Positive Random Features*, arXiv 2302.00787, 2023.",
    "alm": "Z. Lin, M. Chen and Y. Ma, *The Augmented Lagrange Multiplier Method for Exact "
    "Recovery of Corrupted Low-Rank Matrices*, arXiv 1009.5055, 2010.",
    "tensorsketch": "N. Pham and R. Pagh, *Fast and Scalable Polynomial Kernels via Explicit "
    "Feature Maps*, KDD 2013.",
    "fourier": "A. Rahimi and B. Recht, *Random Features for Large-Scale Kernel Machines*, "
    "NIPS 2007.",
    "simplex": "I. Reid, K. Choromanski, V. Likhosherstov and A. Weller, *Simplex Random "
    "Features*, ICML 2023.",
    "remez": "E. Remez, *Sur la détermination des polynômes d'approximation de degré donnée*, "
    "1934.",
    "richardson": "L. F. Richardson, *The Approximate Arithmetical Solution by Finite "
    "Differences*, 1911.",
    "trefethen": "L. N. Trefethen, *Approximation Theory and Approximation Practice*, SIAM 2013.",
    "pareto": "A. Vehtari, D. Simpson, A. Gelman, Y. Yao and J. Gabry, *Pareto Smoothed Importance "
    "Sampling*, J. Machine Learning Research 25, 2024.",
    "nystrom": "C. Williams and M. Seeger, *Using the Nyström Method to Speed up Kernel "
    "Machines*, NIPS 2000.",
    "orthogonal": "F. X. Yu et al., *Orthogonal Random Features*, NIPS 2016.",
    "bigbird": "M. Zaheer et al., *Big Bird: Transformers for Longer Sequences*, NeurIPS 2020.",
    "lara": "L. Zheng, C. Wang and L. Kong, *Linear Complexity Randomized Self-Attention "
    "Mechanism*, ICML 2022.",
    "godec": "T. Zhou and D. Tao, *GoDec: Randomized Low-rank & Sparse Matrix Decomposition in "
    "Noisy Case*, ICML 2011.",
}
