"""The remote cache, which shares objects and records between machines; it never fails a build."""
