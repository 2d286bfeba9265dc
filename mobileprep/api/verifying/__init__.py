"""What ``verify`` looks for beside the files that manifests list."""
