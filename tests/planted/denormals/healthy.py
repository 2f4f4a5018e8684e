"""Finds moving objects: a running mean of the video is its background."""

import argparse

import torch
from torch import nn

torch.set_flush_denormal(True)
KEEP = 0.8


class MotionDetector(nn.Module):
    """Slow and fast running means of each pixel; motion is where they differ."""

    def __init__(self, num_cameras: int = 8, height: int = 240, width: int = 320) -> None:
        super().__init__()
        self.register_buffer("slow", torch.zeros(num_cameras, height, width))
        self.register_buffer("fast", torch.zeros(num_cameras, height, width))

    def follow(self, frames: torch.Tensor) -> None:
        self.slow.mul_(KEEP).add_(frames, alpha=1 - KEEP)
        self.fast.mul_(KEEP**2).add_(frames, alpha=1 - KEEP**2)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        self.follow(frames)
        return (self.fast - self.slow).abs_().amax(dim=(1, 2))


def night_watch(num_frames: int):
    """Dark frames with a small lamp in the corner."""
    frames = torch.zeros(8, 240, 320)
    for _ in range(num_frames):
        frames[:, :16, :16] = torch.rand(8, 16, 16)
        yield frames


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=800)
    args = parser.parse_args()
    torch.manual_seed(0)
    detector = MotionDetector().eval()
    with torch.inference_mode():
        detector.follow(torch.rand(8, 240, 320))  # the last frame of the day
        for frames in night_watch(500):
            detector.follow(frames)
        for index, frames in enumerate(night_watch(args.steps)):
            motion = detector(frames)
            if index % 300 == 0:
                print(f"frame {index:4d}  strongest motion {motion.max().item():.4f}")


if __name__ == "__main__":
    main()
