"""Every claim of five notes, and of papers and public code of 2020 to 2026, checked.

There is one module per note, one for papers of a kind, and one function per claim. The function
yields checks; the verdict follows from them and is never written down.
"""

from analysis.claims.evidence import Claim
from analysis.claims.ledger import DOCUMENTS, VERDICTS, check, ids

__all__ = ["DOCUMENTS", "VERDICTS", "Claim", "check", "ids"]
