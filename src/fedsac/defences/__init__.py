"""Hardened mode: defences against clients that cheat, one module each. Which are on is `Config.hardened`; both engines
have them, through `fedsac.runs.hardening` (docs/hardening.md)."""
