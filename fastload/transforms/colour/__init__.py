"""Colours and pixels' levels of bytes: jitter, policies, blur, noise, erasing."""
