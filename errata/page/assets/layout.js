// Lays a graph out in a worker: boxes to the right of what they read.
import { graphlib, layout } from "/assets/vendor/dagre.js";

onmessage = ({ data: { nodes, edges } }) => {
  const graph = new graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 60, marginx: 16, marginy: 30 });
  for (const node of nodes) graph.setNode(node.name, { width: node.width, height: node.height });
  edges.forEach((edge, at) => graph.setEdge(edge.start, edge.end, {}, String(at)));
  layout(graph);
  const { width, height } = graph.graph();
  postMessage({
    width, height,
    nodes: Object.fromEntries(nodes.map(({ name }) => [name, graph.node(name)])),
    edges: edges.map((edge, at) => graph.edge(edge.start, edge.end, String(at)).points),
  });
};
