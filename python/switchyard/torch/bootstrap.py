"""A communicator for the ranks of a torch process group.

The group only carries the unique id and tells rank and size; the communicator is a new one, as torch's own is torch's.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed

from ..comm import UNIQUE_ID_BYTES, Communicator, init as init_from_arguments, make_unique_id


def init(group: Optional[Any] = None, device: Any = "cpu") -> Communicator:
    """Collective over the process group (default: all its ranks); without torch.distributed, from the launcher's
    environment. device: as switchyard.init().
    """
    if group is None and not torch.distributed.is_initialized():
        return init_from_arguments(device=device)
    rank, num_ranks = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    made = make_unique_id() if rank == 0 else bytes(UNIQUE_ID_BYTES)
    carried_by = "cuda" if torch.distributed.get_backend(group) == "nccl" else "cpu"
    unique_id = torch.tensor(list(made), dtype=torch.uint8, device=carried_by)
    # Bytes, not objects: nothing is unpickled.
    torch.distributed.broadcast(unique_id, src=_global_rank(group, 0), group=group)
    return init_from_arguments(unique_id=bytes(unique_id.tolist()), rank=rank, num_ranks=num_ranks, device=device)


def _global_rank(group: Optional[Any], rank: int) -> int:
    return rank if group is None else int(torch.distributed.get_global_rank(group, rank))
