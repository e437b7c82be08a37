"""What Tensor() takes, what it says about it, and what it refuses."""

import ctypes
import gc
import weakref

import numpy
import pytest

import switchyard
from switchyard import InvalidArgument, Tensor, _core


@pytest.mark.parametrize(
    "name", ["float16", "float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64"]
)
def test_numpy_types_keep_their_names(name):
    array = numpy.zeros((3, 5), name)
    tensor = Tensor(array)
    assert (tensor.dtype, tensor.shape, tensor.data_ptr, tensor.writable) == (name, (3, 5), array.ctypes.data, True)


@pytest.mark.parametrize(
    "raw, name",
    [
        ("uint16", "bfloat16"),
        ("int16", "float16"),
        ("uint8", "float8_e4m3"),
        ("uint8", "float8_e5m2"),
        ("uint8", "float4x2"),
        ("float32", "int32"),
    ],
)
def test_raw_integers_can_be_viewed_as_narrow_floats(raw, name):
    array = numpy.zeros((2, 4), raw)
    assert Tensor(array, dtype=name).dtype == name
    assert Tensor(array, dtype=name).data_ptr == array.ctypes.data


def test_a_view_of_another_width_is_refused():
    with pytest.raises(InvalidArgument, match="x has elements of type uint8, which can't be viewed as bfloat16"):
        Tensor(numpy.zeros(4, numpy.uint8), dtype="bfloat16", name="x")


@pytest.mark.parametrize(
    "bad, why",
    [
        (numpy.zeros((4, 4), numpy.float32).T[:, :2], "x, of shape .4, 2., is not contiguous"),
        (numpy.zeros((4, 4), numpy.float32)[::2], "not contiguous"),
        (numpy.zeros(4, ">f4"), "bytes in the other order"),
        (numpy.zeros(4, numpy.bool_), "x has elements of type bool, known are"),
        (numpy.zeros(4, numpy.complex64), "complex64"),
        (numpy.zeros(4, object), "object"),
        ([1.0, 2.0], "x is a list, allowed are"),
        (None, "x is a NoneType"),
        (4096, "x is an address and needs a dtype and a shape"),
        (numpy.zeros((1, 1, 1, 1, 1), numpy.float32), "x has 5 dimensions, allowed 1..4"),
        (numpy.float32(1), "x"),
    ],
)
def test_what_cannot_be_is_refused_by_name(bad, why):
    with pytest.raises(InvalidArgument, match=why):
        Tensor(bad, name="x")
    with pytest.raises(ValueError):
        Tensor(bad, name="x")


class Interface:
    """An object with an array interface and nothing else."""

    def __init__(self, array, kind="__array_interface__", **changes):
        self.array = array
        setattr(self, kind, {**array.__array_interface__, **changes})


class DlPack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_array_interfaces_and_dlpack_are_not_copied():
    array = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    for wrapped in (Interface(array), DlPack(array), memoryview(array.view(numpy.uint8).reshape(-1))):
        assert Tensor(wrapped).data_ptr == array.ctypes.data
    assert Tensor(DlPack(array)).dtype == "float32"
    assert Tensor(DlPack(array)).shape == (3, 4)


def test_foreign_strides_are_refused():
    array = numpy.zeros((4, 4), numpy.float32)
    with pytest.raises(InvalidArgument, match="not contiguous"):
        Tensor(DlPack(array[:, ::2]))
    with pytest.raises(InvalidArgument, match="not contiguous"):
        Tensor(Interface(array, strides=(32, 4)))


class OnDevice(DlPack):
    def __init__(self, array, kind, ordinal=0):
        super().__init__(array)
        self.kind, self.ordinal = kind, ordinal

    def __dlpack__(self, stream=None):
        assert stream == (-1 if self.kind == 2 else None)  # on a GPU: nothing is to be waited for
        return super().__dlpack__()

    def __dlpack_device__(self):
        return (self.kind, self.ordinal)


def test_devices():
    array = numpy.zeros(4, numpy.float32)
    on_gpu = Interface(array, "__cuda_array_interface__")
    assert str(Tensor(on_gpu).device) == "cuda"  # which one, this interface does not say
    assert str(Tensor(OnDevice(array, 2)).device) == "cuda:0"
    assert str(Tensor(OnDevice(array, 2, 3)).device) == "cuda:3"
    assert str(Tensor(OnDevice(array, 3)).device) == "cpu"
    assert str(Tensor(array).device) == "cpu"
    with pytest.raises(InvalidArgument, match="x is on a device of DLPack's kind 4"):
        Tensor(OnDevice(array, 4), name="x")


def test_a_batch_of_another_gpu_is_refused():
    x, idx, weights = numpy.zeros((1, 4), numpy.float32), numpy.zeros((1, 1), int), numpy.ones((1, 1), numpy.float32)
    shape = _core.BatchShape(1, 4, 1, 1, _core.DTYPE_CODES["float32"], _core.DeviceId(_core.DeviceKind.CUDA, 0))

    def check(*ordinals):
        tensors = (Tensor(OnDevice(a, 2, ordinal)) for a, ordinal in zip((x, idx, weights), ordinals))
        _core.check_batch(*tensors, shape)

    check(0, 0, 0)
    on_any = Tensor(Interface(x, "__cuda_array_interface__"))
    _core.check_batch(on_any, Tensor(OnDevice(idx, 2)), Tensor(OnDevice(weights, 2)), shape)
    for ordinals, name in (((1, 0, 0), "x"), ((0, 1, 0), "topk_idx"), ((0, 0, 1), "topk_weights")):
        with pytest.raises(InvalidArgument, match=name + " is in the memory of GPU 1, .* needs the memory of GPU 0"):
            check(*ordinals)


def test_a_tensor_of_a_tensor_is_another_view_of_it():
    array = numpy.zeros((2, 4), numpy.float32)
    view = Tensor(Tensor(array), shape=(8,), dtype="int32")
    assert (view.shape, view.dtype, view.data_ptr, view.buffer is array) == ((8,), "int32", array.ctypes.data, True)
    for shape in ((1 << 28,), (9,), (1 << 62, 1 << 62)):
        with pytest.raises(InvalidArgument, match="x is .2, 4. float32, can't be"):
            Tensor(Tensor(array), shape=shape, name="x")


def test_a_view_of_a_tensor_in_a_window_is_in_the_window(comm):
    with switchyard.SymmetricMemory(comm, 256) as memory:
        given = memory.tensor((4, 8), "float32", offset=128)
        assert repr(Tensor(given, shape=(8, 4))) == repr(given.reshape((8, 4)))
        assert Tensor(given, dtype="int32").data_ptr == given.data_ptr
        assert Tensor(given).buffer is memory


def test_places_outside_a_window_are_refused(comm):
    with switchyard.SymmetricMemory(comm, 4096) as memory:
        for make in (memory.tensor, memory.array):
            for offset in (-8, -(1 << 30), 4096 - 12, 1 << 40, 1.5, "8"):
                with pytest.raises(InvalidArgument, match="tensor is .* at byte|offset of tensor in its window is"):
                    make((4,), "float32", offset=offset)
            for shape in ((-1,), 4, None, "ab", (1.5,), (1 << 40,), (1 << 62, 1 << 62)):
                with pytest.raises(InvalidArgument, match="shape of tensor|tensor is .* at byte|needs buffer None"):
                    make(shape, "float32")
        array = memory.array((numpy.int64(4),), "float32", offset=numpy.int64(16))
        array[:] = 7
        assert list(memory.array((8,), "float32")) == [0, 0, 0, 0, 7, 7, 7, 7]


def test_the_two_types_called_e4m3_are_told_apart():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert Tensor(numpy.zeros(4, ml_dtypes.float8_e4m3fn)).dtype == "float8_e4m3"
    with pytest.raises(InvalidArgument, match="x has elements of type IEEE's float8_e4m3"):
        Tensor(numpy.zeros(4, ml_dtypes.float8_e4m3), name="x")


def test_an_address_with_type_and_shape():
    memory = (ctypes.c_float * 8)()
    tensor = Tensor(ctypes.addressof(memory), dtype="float32", shape=(2, 4))
    assert (tensor.shape, tensor.data_ptr) == ((2, 4), ctypes.addressof(memory))


def test_a_tensor_keeps_its_buffer_and_lets_it_go():
    array = numpy.zeros(4, numpy.float32)
    buffer, tensor = weakref.ref(array), Tensor(array)
    del array
    gc.collect()
    assert buffer() is not None
    del tensor
    gc.collect()
    assert buffer() is None
    packed = DlPack(numpy.ones(4, numpy.float32))
    tensor = Tensor(packed)
    address, packed = tensor.data_ptr, None
    gc.collect()
    assert list((ctypes.c_float * 4).from_address(address)) == [1, 1, 1, 1]


def test_read_only_arrays_are_inputs_only():
    array = numpy.zeros(4, numpy.float32)
    array.flags.writeable = False
    assert not Tensor(array).writable


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(2, 3, dtype=torch.bfloat16)
    assert (Tensor(tensor).dtype, Tensor(tensor).shape, Tensor(tensor).data_ptr) == (
        "bfloat16",
        (2, 3),
        tensor.data_ptr(),
    )
    with pytest.raises(InvalidArgument, match="x, of shape .3, 2., is not contiguous"):
        Tensor(tensor.t(), name="x")
    with pytest.raises(InvalidArgument, match="x is on meta"):
        Tensor(torch.zeros(2, device="meta"), name="x")
    with pytest.raises(InvalidArgument, match="x is sparse .torch.sparse_coo., must be dense"):
        Tensor(torch.eye(4).to_sparse(), name="x")


def test_importing_the_package_does_not_import_torch():
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", "import sys, switchyard; assert 'torch' not in sys.modules"], check=True)
