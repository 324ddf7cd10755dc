"""What readers read: translation, amounts, columns of a terminal."""
