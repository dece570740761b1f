"""Access to a GPU through NVML, or through zeusd."""
