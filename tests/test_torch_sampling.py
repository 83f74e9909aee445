"""The bench's own sampler of neighbours: what NeighborSampling is timed beside must do the same work."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from lmc.bench.torch_sampling import sampled
from strategies import graphs


@given(example=graphs(), fanouts=st.lists(st.integers(1, 4), min_size=1, max_size=3), data=st.data())
def test_every_new_node_hears_as_many_neighbours_as_asked_for(example, fanouts, data):
    n, heard = example.graph.num_nodes, example.pattern & ~torch.eye(example.graph.num_nodes).bool().numpy()
    targets = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    nodes, edges, count = sampled(example.graph, torch.tensor(targets), fanouts)
    assert nodes[:count].tolist() == targets
    assert len(nodes.unique()) == len(nodes)
    pairs = [(int(nodes[target]), int(nodes[source])) for source, target in edges.T.tolist()]
    assert len(set(pairs)) == len(pairs)
    assert all(heard[pair] for pair in pairs)
    known, last = set(targets), targets
    for fanout in fanouts:
        drawn = {node: [source for target, source in pairs if target == node] for node in last}
        assert all(len(sources) == min(fanout, heard[node].sum()) for node, sources in drawn.items())
        last = sorted({source for sources in drawn.values() for source in sources} - known)
        known |= set(last)
    assert set(nodes.tolist()) == known
