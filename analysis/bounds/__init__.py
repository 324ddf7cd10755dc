"""What is proved: lower bounds of classes, certificates, residuals, concentration, theory."""
