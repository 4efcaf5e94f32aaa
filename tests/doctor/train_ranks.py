"""Training of several ranks for the doctor's tests, of which rank 1 is slowed down as the arguments say."""

import argparse
import faulthandler
import threading
import time

import torch
import torch.distributed
from torch.utils.data import DataLoader, Dataset


def options():
    parser = argparse.ArgumentParser()
    for name in ("slow-loader", "slow-model", "slow-writes", "slow-network"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--fails-after", type=int, default=0)
    parser.add_argument("--calls", action="store_true", help="average gradients without a wrapped model")
    return parser.parse_args()


class Numbers(Dataset):
    def __init__(self, samples, width, takes_s):
        self.samples = samples
        self.sample = torch.ones(width)
        self.takes_s = takes_s

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        time.sleep(self.takes_s)
        return self.sample


class Model(torch.nn.Module):
    def __init__(self, width, takes_s):
        super().__init__()
        self.layer = torch.nn.Linear(width, width)
        self.takes_s = takes_s

    def forward(self, numbers):
        time.sleep(self.takes_s)
        return self.layer(numbers)


def write_log(takes_s):
    time.sleep(takes_s)


def delay(takes_s, bucket):
    """Average gradients, and return them later, as a slow network would."""
    averaged = torch.futures.Future()

    def send():
        torch.distributed.all_reduce(bucket.buffer())
        time.sleep(takes_s)
        averaged.set_result(bucket.buffer().div_(torch.distributed.get_world_size()))

    threading.Thread(target=send, daemon=True).start()
    return averaged


def train(given):
    is_slow = torch.distributed.get_rank() == 1
    plain = Model(given.width, is_slow * given.slow_model)
    model = plain if given.calls else torch.nn.parallel.DistributedDataParallel(plain)
    if given.slow_network:
        model.register_comm_hook(given.slow_network, delay)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    loader = DataLoader(Numbers(4 * given.batches, given.width, is_slow * given.slow_loader / 4), 4)
    for step, numbers in enumerate(loader, 1):
        time.sleep(0.01)
        if is_slow and step == given.fails_after:
            raise ValueError("a bad label")
        loss = model(numbers).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if given.calls:
            for parameter in model.parameters():
                torch.distributed.all_reduce(parameter.grad)
        optimizer.step()
        write_log(is_slow * given.slow_writes)
    print(f"weights: {sum(weights.sum() for weights in model.parameters()):.6f}")


def main():
    given = options()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    # The model goes before the group. If it went last, it would end the group's thread while holding Python's
    # lock, and hang if that thread, which lags behind on a loaded machine, needs the lock (torch 2.13).
    train(given)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    faulthandler.enable()
    main()
