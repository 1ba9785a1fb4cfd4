"""What others test their plug-ins with: contract suites, made-up studies, and bad candidates (`villains/`)."""
