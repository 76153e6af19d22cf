"""The memory encoder: what is kept of a frame and its mask. Mirrors transformers' Sam2VideoMemoryEncoder."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from labeler.convert.layers import channels_last_norm, linear, pointwise, to_nchw, to_nhwc


class Downsample(nn.Module):
    """Sam2VideoMaskDownSamplerLayer, channels last."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.conv, self.norm, self.activation = layer.conv, channels_last_norm(layer.layer_norm), layer.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.norm(to_nhwc(self.conv(to_nchw(x)))))


class Fuse(nn.Module):
    """Sam2VideoMemoryFuserCXBlock, channels last, its layer scale folded into the last Linear."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.conv, self.norm, self.activation = (
            block.depthwise_conv,
            channels_last_norm(block.layer_norm),
            block.activation,
        )
        self.wide, last = block.pointwise_conv1, block.pointwise_conv2
        self.narrow = linear(last.weight * block.scale[:, None], last.bias * block.scale)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(self.activation(self.wide(self.norm(to_nhwc(self.conv(to_nchw(x)))))))


class Memorize(nn.Module):
    """pix [1, 256, 64, 64], mask [1, 1024, 1024] (-10 .. 10), occluded [1, 1] -> memory [1, 4096, 64]."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        encoder = model.memory_encoder
        self.down = nn.Sequential(*(Downsample(layer) for layer in encoder.mask_downsampler.layers))
        self.down_out = pointwise(encoder.mask_downsampler.final_conv)
        self.pix_in, self.out = pointwise(encoder.feature_projection), pointwise(encoder.projection)
        self.fuse = nn.Sequential(*(Fuse(block) for block in encoder.memory_fuser.layers))
        self.occlusion = nn.Buffer(model.occlusion_spatial_embedding_parameter.detach().reshape(1, 1, -1).clone())

    def forward(self, pix: Tensor, mask: Tensor, occluded: Tensor) -> tuple[Tensor, ...]:
        seen = self.down_out(self.down(mask.reshape(1, 1024, 1024, 1)))
        memory = self.out(self.fuse(self.pix_in(to_nhwc(pix)) + seen))
        return (memory.reshape(1, 4096, 64) + occluded.reshape(1, 1, 1) * self.occlusion,)
