"""The names of the agents that ship. Light: help texts name them, too."""

from typing import Final

SUPERVISOR: Final = "supervisor"
ECHO: Final = "echo"
MATH: Final = "math"
CURRENCY: Final = "currency"
RESEARCH: Final = "research"
ARGOCD: Final = "argocd"
"""Only where settings say where Argo CD is."""

SHIPPED: Final = (SUPERVISOR, ECHO, MATH, CURRENCY, RESEARCH, ARGOCD)
