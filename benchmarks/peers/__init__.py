"""What Farthing is measured against: small programs that do the same without its promises."""
