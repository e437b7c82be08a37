"""Ranks as threads of the test's process."""

import threading

import switchyard


def on_ranks(num_ranks, body):
    """Calls body(comm) in a thread for each rank and returns what they returned; raises what the first of them
    raised.
    """
    unique_id = switchyard.make_unique_id()
    results, errors = [None] * num_ranks, [None] * num_ranks

    def work(rank):
        try:
            with switchyard.init(unique_id=unique_id, rank=rank, num_ranks=num_ranks) as comm:
                results[rank] = body(comm)
        except BaseException as error:
            errors[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if error is not None:
            raise error
    return results
