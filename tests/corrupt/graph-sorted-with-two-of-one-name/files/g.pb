Placeholder

node_1

node_1node_1