"""One low-latency round trip with NumPy, checked by what the contract says."""

import numpy
import switchyard


def test_one_token_over_all_ranks(comm):
    hidden, num_experts = 16, comm.num_ranks
    with switchyard.Group(
        comm,
        switchyard.GroupConfig(num_experts=num_experts, max_dispatch_tokens_per_rank=4, max_token_bytes=4 * hidden),
    ) as group:
        assert group.local_experts == [comm.rank]
        # Rank r's token goes to expert r + 1, which is the next rank's, and to its own.
        topk_idx = numpy.array([[(comm.rank + 1) % num_experts, comm.rank]], numpy.int64)
        weights = numpy.array([[0.5, 2.0]], numpy.float32)
        x = numpy.full((1, hidden), 1.0 + comm.rank, numpy.float32)
        received = numpy.zeros((1, group.rows_per_expert, hidden), numpy.float32)
        counts = numpy.zeros(1, numpy.int32)
        y = numpy.empty_like(x)

        handle = group.create_handle(switchyard.Layout.EXPERT_MAJOR, topk_idx)
        handle.dispatch(
            switchyard.DispatchInputs(tokens=x),
            switchyard.DispatchOutputs(tokens=received),
            layout_info=switchyard.LayoutInfo(expert_counters=counts),
        )
        comm.stream.synchronize()
        sources = sorted([comm.rank, (comm.rank - 1) % num_experts]) if num_experts > 1 else [0, 0]
        assert counts[0] == 2
        assert (received[0, :2] == numpy.array([[1.0 + source] for source in sources])).all()

        received[0, :2] *= 10.0 + comm.rank  # the expert
        handle.combine(
            switchyard.CombineInputs(tokens=received), switchyard.CombineOutputs(tokens=y, topk_weights=weights)
        )
        comm.stream.synchronize()
        expected = x * (10.0 + (comm.rank + 1) % num_experts) * 0.5 + x * (10.0 + comm.rank) * 2.0
        assert (y == expected).all()
