"""The methods: what each is called, assumes and costs (`spec`), and how it runs (`fit`)."""
