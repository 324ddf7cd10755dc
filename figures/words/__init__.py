"""Words: translation, amounts, numbers as text, columns of a terminal."""
