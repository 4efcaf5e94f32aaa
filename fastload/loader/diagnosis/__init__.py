"""What holds a training back, and what would help: pure functions of what was measured."""

from fastload.loader.diagnosis.diagnose import diagnose, of_epoch
from fastload.loader.diagnosis.findings import Diagnosis, Fix
from fastload.loader.diagnosis.measurements import Measurements, Setting

__all__ = ["Diagnosis", "Fix", "Measurements", "Setting", "diagnose", "of_epoch"]
