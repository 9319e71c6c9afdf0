"""π(θ|Y_U): what θ is scored by given a subset, the reference point, and the corrections that need it."""

from lwa.targets.target import Calibrated, Powered, Subposterior, TargetChoice

__all__ = ["Calibrated", "Powered", "Subposterior", "TargetChoice"]
