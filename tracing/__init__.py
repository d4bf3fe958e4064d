"""From a torch module and a batch to a graph, and the code that runs each op."""
