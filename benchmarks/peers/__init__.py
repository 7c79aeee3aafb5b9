"""Small programs that Farthing is measured against; they do the same without its promises."""
