"""The methods: `spec` has a method's name, assumptions and price, `fit` runs it."""
