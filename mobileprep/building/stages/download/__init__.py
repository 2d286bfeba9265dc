"""Write the delta from the installed model to the new one."""
