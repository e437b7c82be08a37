"""Whatever is wrong with an argument, InvalidArgument says which one and what it must be; nothing prints a secret."""

import numpy
import pytest

import reference
import switchyard
from switchyard import Group, GroupConfig, Handle, InvalidArgument, InvalidUsage, Layout, MoE, SymmetricMemory

ONE = numpy.ones(1, numpy.float32)


def refused(call, *names):
    with pytest.raises(InvalidArgument) as caught:
        call()
    for name in names:
        assert name in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("bad", [[1.0], None, 1.5, "text", object(), 7])
@pytest.mark.parametrize(
    "operation", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "all_to_all_v"]
)
def test_collectives_take_tensors(comm, operation, bad):
    more = ([1], [1]) if operation == "all_to_all_v" else ()
    refused(lambda: getattr(comm, operation)(bad, *more), ": x is a")
    if operation != "broadcast" and bad is not None:
        refused(lambda: getattr(comm, operation)(ONE, *more, out=bad), ": out is a")


def test_collectives_say_what_is_wrong_with_numbers(comm):
    refused(lambda: comm.all_reduce(b"1234"), "give `out`")
    for root in (None, 1, -1, 0.5, "0"):
        refused(lambda: comm.broadcast(ONE, root), "root is %r, must be a whole number from 0 to 0" % (root,))
    for op in (None, "median", 3, ["sum"]):
        refused(lambda: comm.all_reduce(ONE, op), "op is")
    for counts in ([-1], [1.5], ["1"]):
        refused(lambda: comm.all_to_all_v(ONE, counts, [1]), "sent[0] is")
        refused(lambda: comm.all_to_all_v(ONE, [1], counts), "received[0] is")
    refused(lambda: comm.all_to_all_v(ONE, None, [1]), "sent is None, must be a sequence")
    refused(lambda: comm.all_to_all_v(ONE, 1, [1]), "sent is 1, must be a sequence")
    refused(lambda: comm.split("a"), "color is 'a'")
    refused(lambda: comm.split(0, key=1 << 40), "key is")
    refused(lambda: comm.abort(7), "reason is a int")
    for timeout in ("a", -1, float("nan"), float("inf"), [1]):
        refused(lambda: comm.stream.synchronize(timeout), "timeout is")
    read_only = ONE.copy()
    read_only.flags.writeable = False
    refused(lambda: comm.broadcast(read_only), "x is read-only")
    got = comm.all_to_all_v(ONE, numpy.array([1]), (numpy.uint8(1),))
    assert got == comm.broadcast(ONE.copy(), numpy.int64(0)) == 1


def test_objects_are_made_of_the_right_ones(comm):
    for bad in (None, 3, ONE):
        refused(lambda: MoE(bad, experts=1, topk=1, hidden=16), "comm is", "must be a Communicator")
        refused(lambda: Group(bad, GroupConfig()), "comm is")
        refused(lambda: Group(comm, bad), "config is", "must be a GroupConfig")
        refused(lambda: SymmetricMemory(bad, 64), "comm is")
        refused(lambda: Handle(bad, Layout.EXPERT_MAJOR, 1), "group is", "must be a Group")
        if bad is not None:
            refused(lambda: switchyard.Tensor(None, window=bad, dtype="int8", shape=(1,), name="x"), "window of x is")
    for num_bytes in (-1, None, 1.5, "64"):
        refused(lambda: SymmetricMemory(comm, num_bytes), "num_bytes is %r" % (num_bytes,))
    for name, value in (
        ("algorithm", 7),
        ("algorithm", "ll"),
        ("num_experts", -1),
        ("num_experts", 1 << 32),
        ("max_token_bytes", 1.5),
        ("enable_mask", "yes"),
        ("timeout_ns", 1 << 64),
        ("zero_copy", None),
    ):
        refused(lambda: GroupConfig(**{name: value}), "%s is %r" % (name, value))
    refused(lambda: switchyard.DispatchConfig(pass_direction="fwd"), "pass_direction is 'fwd', must be one of PassDir.")
    refused(lambda: switchyard.HandleConfig(dispatch_output_per_expert_alignment=-4), "alignment is -4")
    assert GroupConfig(num_experts=numpy.int64(4), algorithm=1).algorithm is switchyard.Algorithm.HIGH_THROUGHPUT


def test_calls_of_handles(comm):
    with reference.new_group(comm, enable_mask=True) as group:
        handle = group.create_handle(Layout.EXPERT_MAJOR, numpy.zeros((1, 1), numpy.int64))
        inputs = switchyard.DispatchInputs(tokens=numpy.zeros((1, 16), numpy.float32))
        for bad in (None, ONE, {}):
            refused(lambda: handle.dispatch(bad, bad), "inputs is", "must be a DispatchInputs")
            refused(lambda: handle.dispatch(inputs, bad), "outputs is", "must be a DispatchOutputs")
            refused(lambda: handle.combine(inputs, bad), "inputs is", "must be a CombineInputs")
        refused(lambda: handle.dispatch(inputs, inputs, layout_info=3), "layout_info is 3")
        refused(lambda: handle.dispatch(inputs, inputs, config=3), "config is 3")
        refused(lambda: Handle(group, "flat", 1), "layout is 'flat'")
        refused(lambda: Handle(group, Layout.EXPERT_MAJOR, 1.5), "num_topk is 1.5")
        refused(lambda: group.handle_memory_bytes(9, 1), "layout is 9")
        for mask in ([1.5], [2], ["1"], None):
            refused(lambda: group.mask_update(mask), "mask is")
        group.mask_update([True])
        handle.close()


def test_init_names_the_argument_and_keeps_the_secret():
    unique_id = switchyard.make_unique_id()
    good = dict(unique_id=unique_id, rank=0, num_ranks=1)
    for changes, name in (
        (dict(rank="0"), "rank is '0'"),
        (dict(rank=unique_id), "rank is a bytes"),
        (dict(num_ranks=1.0), "num_ranks is 1.0"),
        (dict(unique_id=unique_id.decode("latin1")), "unique_id is a str, must be 128 bytes"),
        (dict(unique_id=unique_id[:-1]), "unique_id has 127 bytes, must have 128"),
        (dict(unique_id=None, store=7), "store is a int, must be a str"),
        (dict(unique_id=None, store="file:///nowhere", job_key=unique_id), "job_key is a bytes, must be a str"),
    ):
        message = refused(lambda: switchyard.init(**{**good, **changes}), name)
        assert repr(unique_id[8:16])[2:-1] not in message
    for form in (bytearray, memoryview):
        with switchyard.init(unique_id=form(unique_id), rank=numpy.int64(0), num_ranks=numpy.int32(1)) as comm:
            assert comm.num_ranks == 1
        unique_id = switchyard.make_unique_id()


def test_a_closed_group_says_so(comm):
    group = reference.new_group(comm, enable_mask=True)
    handle = group.create_handle(Layout.EXPERT_MAJOR, numpy.zeros((1, 1), numpy.int64))
    del handle
    group.close()
    for call in (
        group.mask_query,
        lambda: group.mask_update([1]),
        lambda: Handle(group, Layout.EXPERT_MAJOR, 1),
        lambda: group.create_handle(Layout.EXPERT_MAJOR, numpy.zeros((1, 1), numpy.int64)),
    ):
        with pytest.raises(InvalidUsage, match="the group is closed"):
            call()
