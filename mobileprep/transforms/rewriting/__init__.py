"""What several transforms share: layers and what merges into them, constants worked out ahead."""
