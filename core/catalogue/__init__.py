"""What may be asked for: columns, models, losses, questions, methods with their prices and plans. Never torch."""
