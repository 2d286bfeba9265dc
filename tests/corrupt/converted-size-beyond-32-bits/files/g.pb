
"
node_0Placeholder*
dtype0
7
node_1Placeholder*
dtype0*
shape
:€€€€
 
nodeFloorModnode_0node_1