"""Running graphs: selecting, planning, fusing, running, loops and calls, engines, accounting."""
