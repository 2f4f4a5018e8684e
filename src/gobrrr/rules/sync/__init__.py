"""Does the accelerator wait for the host?"""
