"""Linear and mixed-integer programs, and HiGHS."""
