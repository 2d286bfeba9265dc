

node	FakeParam*
dtype0