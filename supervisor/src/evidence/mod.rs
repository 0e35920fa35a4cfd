//! The node's evidence: an append-only, hash-chained, signed log (EVI).
