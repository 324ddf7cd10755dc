"""Every claim of the five source documents, checked: one module a document, one function a claim.

The function yields checks; the verdict follows from them and is never written down. Claims of
papers and public code of 2020 to 2026 are in `studies.claims`.
"""

from analysis.claims.evidence import Claim
from analysis.claims.ledger import DOCUMENTS, MODULES, VERDICTS, check, ids

__all__ = ["DOCUMENTS", "MODULES", "VERDICTS", "Claim", "check", "ids"]
