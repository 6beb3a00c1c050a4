"""The closed list of operators that a step may call, by name.

All are functional and deterministic. Lists, not a search through torch: they do not depend on the installed version of
torch, and this module does not import it.
"""

from __future__ import annotations

from typing import Final


def _names(text: str) -> frozenset[str]:
    """ "add.Tensor,Scalar abs" as "aten.add.Tensor", "aten.add.Scalar", "aten.abs.default"."""
    found: list[str] = []
    for item in text.split():
        packet, _, overloads = item.partition(".")
        found.extend(f"aten.{packet}.{overload}" for overload in (overloads or "default").split(","))
    return frozenset(found)


#: Operators that move elements and compute nothing: not worth a delegate by themselves.
VIEWS: Final = _names(
    """
    as_strided_copy diagonal_copy expand_copy permute_copy select_copy.int slice_copy.Tensor split_copy.Tensor
    split_with_sizes_copy squeeze_copy.default,dim,dims t_copy transpose_copy.int unbind_copy.int unfold_copy
    unsqueeze_copy view_copy.default,dtype
    """
)

#: Operators that the core would decompose and the backend keeps: PyTorch computes them in its own way.
WHOLE: Final = _names(
    """
    _safe_softmax _weight_norm_interface _upsample_bicubic2d_aa.default,vec _upsample_bilinear2d_aa.default,vec
    _upsample_nearest_exact1d.default,vec _upsample_nearest_exact2d.default,vec
    _upsample_nearest_exact3d.default,vec adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d addcdiv addcmul addmv addr affine_grid_generator
    aminmax argsort.default,stable avg_pool1d avg_pool2d avg_pool3d baddbmm addbmm batch_norm bilinear
    binary_cross_entropy binary_cross_entropy_with_logits bucketize.Tensor,Scalar celu cdist channel_shuffle
    conv1d.default,padding conv2d.default,padding conv3d.default,padding conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input cosine_similarity count_nonzero.default,dim_IntList cross cross_entropy_loss cummax
    cummin cumprod dist dot einsum elu embedding_bag.default,padding_idx erfc erfinv fractional_max_pool2d frac
    frexp.Tensor gcd gelu glu grid_sampler grid_sampler_2d grid_sampler_3d group_norm gru.input hardshrink
    hardsigmoid hardswish hardtanh heaviside huber_loss hypot i0 igamma igammac im2col col2im index_add index_copy
    index_reduce inner instance_norm isclose isin.Tensor_Tensor,Tensor_Scalar,Scalar_Tensor kl_div kthvalue l1_loss
    layer_norm lcm leaky_relu lerp.Scalar,Tensor lgamma linalg_cross linalg_vector_norm linear log_sigmoid
    log_softmax.int logaddexp logaddexp2 logcumsumexp logit logsumexp lstm.input masked_scatter matmul max_pool1d
    max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool2d max_unpool3d
    median.default,dim mish mode mse_loss multi_margin_loss multilabel_margin_loss mv nan_to_num nanmean
    nanmedian.default,dim nansum native_channel_shuffle native_group_norm native_layer_norm nextafter nll_loss
    nll_loss2d nll_loss_nd norm.Scalar,ScalarOpt_dim outer pairwise_distance pdist pixel_shuffle pixel_unshuffle
    polygamma prelu quantile.default,scalar nanquantile.default,scalar renorm repeat_interleave.self_int rms_norm
    rnn_relu.input rnn_tanh.input rot90 scaled_dot_product_attention scatter.src,value,reduce,value_reduce
    scatter_reduce.two searchsorted.Tensor,Scalar select_scatter selu sgn silu sinc slice_scatter diagonal_scatter
    smooth_l1_loss soft_margin_loss softmax.int softplus softshrink special_entr special_erfcx special_i0e
    special_i1 special_i1e special_log_ndtr special_ndtri special_xlog1py special_zeta square
    std.default,dim,correction std_mean.correction take take_along_dim tensordot threshold trace trapezoid.x,dx triu
    tril upsample_bicubic2d.default,vec upsample_bilinear2d.default,vec upsample_linear1d.default,vec
    upsample_nearest1d.default,vec upsample_nearest2d.default,vec upsample_nearest3d.default,vec
    upsample_trilinear3d.default,vec vdot var_mean.correction xlogy.Tensor,Scalar_Other,Scalar_Self
    """
)

#: Operators that reach the backend unchanged: core ATen, and those without a decomposition.
PLAIN: Final = _names(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _cdist_forward _embedding_bag
    _embedding_bag_forward_only _log_softmax _logcumsumexp _native_batch_norm_legit.no_stats
    _native_batch_norm_legit_no_training _pdist_forward _softmax _to_copy _trilinear _unsafe_index.Tensor
    _unsafe_index_put _unsafe_view _weight_norm abs acos acosh add.Tensor,Scalar addmm alias_copy
    all.default,dim,dims amax amin any.default,dim,dims arange.default,start,start_step argmax argmin
    as_strided_scatter asin asinh atan atan2 atanh avg_pool2d_backward bitwise_and.Tensor,Scalar,Scalar_Tensor
    bitwise_left_shift.Tensor,Tensor_Scalar,Scalar_Tensor bitwise_not bitwise_or.Tensor,Scalar,Scalar_Tensor
    bitwise_right_shift.Tensor,Tensor_Scalar,Scalar_Tensor bitwise_xor.Tensor,Scalar,Scalar_Tensor bmm cat ceil
    cholesky cholesky_inverse cholesky_solve clamp.default,Tensor clone constant_pad_nd convolution
    convolution_backward copy copysign.Tensor,Scalar cos cosh cumsum detach_copy diag_embed digamma
    div.Tensor,Scalar,Tensor_mode,Scalar_mode embedding embedding_dense_backward eq.Tensor,Scalar erf exp exp2 expm1
    eye.default,m fill.Scalar,Tensor flip floor floor_divide.default,Scalar fmax fmin fmod.Tensor,Scalar full
    full_like gather ge.Tensor,Scalar geqrf gt.Tensor,Scalar histc histogram.bin_ct,bins_tensor index.Tensor
    index_put index_select isfinite isinf isnan isneginf isposinf le.Tensor,Scalar ldexp.Tensor linalg_cholesky_ex
    linalg_det linalg_eigh linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex linalg_ldl_factor_ex
    linalg_ldl_solve linalg_lu linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp linalg_pinv.atol_rtol_tensor
    linalg_qr linalg_slogdet linalg_solve linalg_solve_triangular linalg_svd linalg_svdvals _linalg_det _linalg_eigh
    _linalg_slogdet _linalg_solve_ex _linalg_svd linspace.default,Tensor_Tensor,Tensor_Scalar,Scalar_Tensor log
    log10 log1p log2 logical_and logical_not logical_or logical_xor
    logspace.default,Tensor_Tensor,Tensor_Scalar,Scalar_Tensor lt.Tensor,Scalar masked_fill.Scalar,Tensor
    max.default,dim,other max_pool2d_with_indices_backward maximum mean.default,dim min.default,dim,other minimum mm
    mul.Tensor,Scalar narrow_copy native_batch_norm native_group_norm_backward native_layer_norm_backward
    ne.Tensor,Scalar neg new_full new_ones new_zeros ones ones_like ormqr pow.Tensor_Tensor,Tensor_Scalar,Scalar
    prod.default,dim_int put reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu
    remainder.Tensor,Scalar,Scalar_Tensor repeat replication_pad1d replication_pad2d replication_pad3d roll
    round.default,decimals rsqrt rsub.Tensor,Scalar scalar_tensor scatter_add sigmoid sign signbit sin sinh
    sort.default,stable special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he
    special_laguerre_polynomial_l special_legendre_polynomial_p special_modified_bessel_i0
    special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
    special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 sqrt stack sub.Tensor,Scalar
    sum.default,dim_IntList tan tanh topk triangular_solve trunc unsafe_split.Tensor unsafe_split_with_sizes
    var.default,dim,correction where.self,Scalar,ScalarSelf,ScalarOther zeros zeros_like
    """
)

#: Every operator that a blob may call.
OPERATORS: Final = VIEWS | WHOLE | PLAIN

#: Operators that never reach a delegate, with the reason if the schema does not tell it.
UNDEFINED: Final = _names(
    "empty.memory_format empty_like empty_permuted empty_strided new_empty new_empty_strided resize resize_as"
)
