
"
node_0Placeholder*
dtype0
"
node_1Placeholder*
dtype0
-
nodePacknode_0node_1*
axis€€€€€ 