"""Running graphs: selection, planning, fusion, execution, loops, calls, engines, and accounting."""
