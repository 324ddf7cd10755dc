"""Every claim of the five source documents, checked: expected, observed, verdict.

There is one module per document and one function per claim. The function yields checks; the verdict
follows from them and is never written down.
"""

from analysis.claims.evidence import Claim
from analysis.claims.ledger import DOCUMENTS, VERDICTS, check, ids

__all__ = ["DOCUMENTS", "VERDICTS", "Claim", "check", "ids"]
