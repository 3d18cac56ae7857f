"""What a profile can be written as besides pprof: one module a format, each a function `Profile` → bytes."""
