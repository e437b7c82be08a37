"""A program of a user who checks types strictly; nothing runs it."""

import numpy

import switchyard
from switchyard import InvalidArgument, MoE

comm: switchyard.Communicator = switchyard.init()
moe: switchyard.MoE = MoE(comm, experts=4, topk=1, hidden=16)
try:
    recv, state = moe.dispatch(numpy.ones((1, 16)), numpy.zeros((1, 1), int), numpy.ones((1, 1)))
    received: switchyard.Received = recv
except InvalidArgument as error:
    code: int = error.code
group: switchyard.Group = moe.group
config = switchyard.GroupConfig(algorithm=switchyard.Algorithm.LOW_LATENCY, num_experts=4)
print(switchyard.__version__, comm.rank, state.num_tokens)
