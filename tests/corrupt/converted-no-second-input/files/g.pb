
,
node_0Mean*
dtype0*
shape:
'
nodeMatrixDiagPartnode_0*
T0"Ê