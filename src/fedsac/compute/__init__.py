"""Many models at once: trained, evaluated, taken apart."""
