"""Names of the metrics that a method may minimise, as `analysis.errors.metrics` computes them."""

TV = "attention_tv"
FROBENIUS = {
    "kernel": "kernel_relative_frobenius",
    "attention": "attention_relative_frobenius",
}  # by the matrix of which it is
