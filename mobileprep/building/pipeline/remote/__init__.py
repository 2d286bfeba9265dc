"""The remote store: objects and records that machines share. Whatever it does, builds go on."""
