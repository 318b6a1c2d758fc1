//! The fixed-point logarithm that straw2 uses.
//!
//! [`crush_ln`] is 2⁴⁴·log₂(x + 1) for 16-bit `x`, from two tables: a coarse one for the upper
//! eight bits of the normalised argument and a fine one for the rest. The fine table as deployed is
//! *not* the logarithm: 235 of its 256 entries are off, most by one constant. Every cluster uses
//! it, so it is data here, not a formula; only the reciprocals follow a rule ([`RECIPROCAL`]).

/// `RECIPROCAL[k]` = 2⁴⁸ / (1 + k/128), rounded up.
const RECIPROCAL: [u64; 129] = {
    let mut table = [0; 129];
    let mut k = 0;
    while k < 129 {
        table[k] = (1_u64 << 55).div_ceil(128 + k as u64);
        k += 1;
    }
    table
};

/// `COARSE[k]` = 2⁴⁸·log₂(1 + k/128), rounded down; the last entry is short of 2⁴⁸ by 2³².
#[rustfmt::skip]
const COARSE: [u64; 129] = [
    0x0000_0000_0000, 0x02df_ca16_dde1, 0x05b9_e5a1_70b4, 0x088e_68ea_899a, 0x0b5d_69ba_c77e, 0x0e26_fd5c_8555,
    0x10eb_389f_a29f, 0x13aa_2fdd_27f1, 0x1663_f6fa_c913, 0x1918_a16e_4633, 0x1bc8_4240_adab, 0x1e72_ec11_7fa5,
    0x2118_b119_b4f3, 0x23b9_a32e_aa56, 0x2655_d3c4_f15c, 0x28ed_53f3_07ee, 0x2b80_3473_f7ad, 0x2e0e_85a9_de04,
    0x3098_57a0_5e07, 0x331d_ba0e_fce1, 0x359e_bc5b_69d9, 0x381b_6d9b_b29b, 0x3a93_dc98_64b2, 0x3d08_17ce_9cd4,
    0x3f78_2d72_04d0, 0x41e4_2b6e_c0c0, 0x444c_1f6b_4c2d, 0x46b0_16ca_47c1, 0x4910_1eac_381c, 0x4b6c_43f1_366a,
    0x4dc4_933a_9337, 0x5019_18ec_6c11, 0x5269_e12f_346e, 0x54b6_f7f1_325a, 0x5700_68e7_ef5a, 0x5946_3f91_9dee,
    0x5b88_8736_7433, 0x5dc7_4ae9_fbec, 0x6002_958c_5871, 0x623a_71cb_82c8, 0x646e_ea24_7c5c, 0x66a0_08e4_788c,
    0x68cd_d829_fd81, 0x6af8_61e5_fc7d, 0x6d1f_afdc_e20a, 0x6f43_cba7_9e40, 0x7164_beb4_a56d, 0x7382_9248_e961,
    0x759d_4f80_cba8, 0x77b4_ff51_08d9, 0x79c9_aa87_9d53, 0x7bdb_59cc_a388, 0x7dea_15a3_2c1b, 0x7ff5_e66a_0ffe,
    0x81fe_d45c_bccb, 0x8404_e793_fb81, 0x8608_2806_b1d5, 0x8808_9d8a_9e47, 0x8a06_4fd5_0f2a, 0x8c01_467b_94bb,
    0x8df9_88f4_ae80, 0x8fef_1e98_7409, 0x91e2_0ea1_393e, 0x93d2_602c_2e5f, 0x95c0_1a39_fbd6, 0x97ab_43af_59f9,
    0x9993_e355_a4e5, 0x9b79_ffdb_6c8b, 0x9d5d_9fd5_010b, 0x9f3e_c9bc_fb80, 0xa11d_83f4_c355, 0xa2f9_d4c5_1039,
    0xa4d3_c25e_68dc, 0xa6ab_52d9_9e76, 0xa880_8c38_4547, 0xaa53_7465_2a1c, 0xac24_1134_c4e9, 0xadf2_6865_a8a1,
    0xafbe_7fa0_f04d, 0xb188_5c7a_a982, 0xb350_0472_3c46, 0xb515_7cf2_d078, 0xb6d8_cb53_b0ca, 0xb899_f4d8_ab63,
    0xba58_feb2_703a, 0xbc15_edfe_ed32, 0xbdd0_c7c9_a817, 0xbf89_910c_1678, 0xc140_4ead_f383, 0xc2f5_0585_93d9,
    0xc4a7_ba58_377c, 0xc658_71da_59dd, 0xc807_30b0_0016, 0xc9b3_fb6d_0559, 0xcb5e_d695_65af, 0xcd07_c69d_8702,
    0xceae_cfea_8085, 0xd053_f6d2_6089, 0xd1f7_3f9c_70c0, 0xd398_ae81_7906, 0xd538_47ac_00a6, 0xd6d6_0f38_8e41,
    0xd872_0935_e643, 0xda0c_39a5_4804, 0xdba4_a47a_a996, 0xdd3b_4d9c_f24b, 0xded0_38e6_33f3, 0xe063_6a23_e2ee,
    0xe1f4_e517_0d02, 0xe384_ad74_8f0e, 0xe512_c6e5_4998, 0xe69f_3506_5448, 0xe829_fb69_3044, 0xe9b3_1d93_f98e,
    0xeb3a_9f01_9750, 0xecc0_8321_eb30, 0xee44_cd59_ffab, 0xefc7_8104_3579, 0xf148_a170_700a, 0xf2c8_31e4_4116,
    0xf446_359b_1353, 0xf5c2_afc6_5447, 0xf73d_a38d_9d4a, 0xf8b7_140e_dbb1, 0xfa2f_045e_7832, 0xfba5_7787_7d7d,
    0xfd1a_708b_be11, 0xfe8d_f263_f957, 0xffff_0000_0000,
];

/// About 2⁴⁸·log₂(1 + k/2¹⁵), with the deviations described above.
#[rustfmt::skip]
const FINE: [u64; 256] = [
    0x0000_0000_0000, 0x0002_e2a6_0a00, 0x0007_0cb6_4ec5, 0x0009_ef50_ce67, 0x000c_d1e5_88fd, 0x000f_b474_7e9c,
    0x0012_96fd_af5e, 0x0015_7981_1b58, 0x0018_5bfe_c2a1, 0x001b_3e76_a552, 0x001e_20e8_c380, 0x0021_0355_1d43,
    0x0023_e5bb_b2b2, 0x0026_c81c_83e4, 0x0029_aa77_90f0, 0x002c_8ccc_d9ed, 0x002f_6f1c_5ef2, 0x0032_5166_2017,
    0x0035_33aa_1d71, 0x0038_15e8_571a, 0x003a_f820_cd26, 0x003d_da53_7fae, 0x0040_bc80_6ec8, 0x0043_9ea7_9a8c,
    0x0046_80c9_0310, 0x0049_62e4_a86c, 0x004c_44fa_8ab6, 0x004f_270a_aa06, 0x0052_0915_0672, 0x0054_eb19_a013,
    0x0057_cd18_76fd, 0x005a_af11_8b4a, 0x005d_9104_dd0f, 0x0060_72f2_6c64, 0x0063_54da_3960, 0x0066_36bc_441a,
    0x0069_1898_8ca8, 0x006b_fa6f_1322, 0x006e_dc3f_d79f, 0x0071_be0a_da35, 0x0074_9fd0_1afd, 0x0077_818f_9a0c,
    0x007a_6349_577a, 0x007d_44fd_535e, 0x0080_26ab_8dce, 0x0083_0854_06e3, 0x0085_e9f6_beb2, 0x0088_cb93_b552,
    0x008b_ad2a_eadc, 0x008e_8ebc_5f65, 0x0091_7048_1305, 0x0094_51ce_05d3, 0x0097_334e_37e5, 0x009a_14c8_a953,
    0x009c_f63d_5a33, 0x009f_d7ac_4a9d, 0x00a2_b07f_3458, 0x00a5_9a78_ea6a, 0x00a8_7bd6_99fb, 0x00ab_5d2e_8970,
    0x00ae_3e80_b8e3, 0x00b1_1fcd_2869, 0x00b4_0113_d818, 0x00b6_e254_c80a, 0x00b9_c38f_f853, 0x00bc_a4c5_690c,
    0x00bf_85f5_1a4a, 0x00c2_671f_0c26, 0x00c5_4843_3eb6, 0x00c8_2961_b211, 0x00cb_0a7a_664d, 0x00cd_eb8d_5b82,
    0x00d0_cc9a_91c8, 0x00d3_ada2_0933, 0x00d6_8ea3_c1dd, 0x00d9_6f9f_bbdb, 0x00dc_5095_f744, 0x00df_3186_7430,
    0x00e2_1271_32b5, 0x00e4_f356_32ea, 0x00e7_d435_74e6, 0x00ea_b50e_f8c1, 0x00ed_95e2_be90, 0x00f0_76b0_c66c,
    0x00f3_5779_106a, 0x00f6_383b_9ca2, 0x00f9_18f8_6b2a, 0x00fb_f9af_7c1a, 0x00fe_da60_cf88, 0x0101_bb0c_658c,
    0x0104_9bb2_3e3c, 0x0107_7c52_59af, 0x010a_5cec_b7fc, 0x010d_3d81_593a, 0x0110_1e10_3d7f, 0x0112_fe99_64e4,
    0x0115_df1c_cf7e, 0x0118_bf9a_7d64, 0x011b_a012_6ead, 0x011e_8084_a371, 0x0121_60f1_1bc6, 0x0124_4157_d7c3,
    0x0127_21b8_d77f, 0x012a_0214_1b10, 0x012c_e269_a28e, 0x012f_c2b9_6e0f, 0x0132_a303_7daa, 0x0135_8347_d177,
    0x0138_6386_698c, 0x013b_43bf_45ff, 0x013e_23f2_66e9, 0x0141_041f_cc5e, 0x0143_e447_7678, 0x0146_c469_654b,
    0x0149_a485_98f0, 0x014c_849c_117c, 0x014f_64ac_cf08, 0x0152_44b7_d1a9, 0x0155_24bd_1976, 0x0158_04bc_a687,
    0x015a_e4b6_78f2, 0x015d_c4aa_90ce, 0x0160_a498_ee31, 0x0163_8481_9134, 0x0166_6464_79ec, 0x0169_4441_a870,
    0x016c_2419_1cd7, 0x016d_f6ca_19bd, 0x0171_e3b6_d7aa, 0x0174_c37d_1e44, 0x0177_a33d_ab1c, 0x017a_82f8_7e49,
    0x017d_62ad_97e2, 0x0180_425c_f7fe, 0x0182_b07f_3458, 0x0186_01aa_8c19, 0x0188_e148_c046, 0x018b_c0e1_3b52,
    0x018e_a073_fd52, 0x0191_8001_065d, 0x0194_5f88_568b, 0x0197_3f09_edf2, 0x019a_1e85_ccaa, 0x019c_fdfb_f2c8,
    0x019f_dd6c_6063, 0x01a2_bcd7_1593, 0x01a5_9c3c_126e, 0x01a8_7b9b_570b, 0x01ab_5af4_e380, 0x01ae_3a48_b7e5,
    0x01b1_1996_d450, 0x01b3_f8df_38d9, 0x01b6_d821_e595, 0x01b9_b75e_da9b, 0x01bc_9696_1803, 0x01bf_75c7_9de3,
    0x01c2_54f3_6c51, 0x01c5_3419_8365, 0x01c8_1339_e336, 0x01ca_f254_8bd9, 0x01cd_d169_7d67, 0x01d0_b078_b7f5,
    0x01d3_8f82_3b9a, 0x01d6_6e86_086d, 0x01d9_4d84_1e86, 0x01dc_2c7c_7df9, 0x01df_0b6f_26df, 0x01e1_ea5c_194e,
    0x01e4_c943_555d, 0x01e7_a824_db23, 0x01ea_8700_aab5, 0x01ed_65d6_c42b, 0x01f0_44a7_279d, 0x01f3_2371_d51f,
    0x01f6_0236_ccca, 0x01f8_e0f6_0eb3, 0x01fb_bfaf_9af3, 0x01fe_9e63_719e, 0x0201_7d11_92cc, 0x0204_5bb9_fe94,
    0x0207_3a5c_b50d, 0x0209_c06e_6212, 0x020c_f791_026a, 0x020f_d622_997c, 0x0212_b07f_3458, 0x0215_9334_a8d8,
    0x0218_71b5_2150, 0x021b_502f_e517, 0x021d_6a73_a78f, 0x0221_0d14_4eee, 0x0223_eb7d_f52c, 0x0226_c9e1_e713,
    0x0229_a840_24bb, 0x022c_2367_9b4e, 0x022f_64eb_83a8, 0x0232_4338_a51b, 0x0235_2180_12a9, 0x0237_ffc1_cc69,
    0x023a_2c3b_0ea4, 0x023d_13ee_805b, 0x0240_35e9_221f, 0x0243_788f_af25, 0x0246_56b4_e735, 0x0247_ed64_6bfe,
    0x024c_12ee_3d98, 0x024e_f102_5c1a, 0x0251_cf10_c799, 0x0254_9264_4d65, 0x0257_8b1c_85ee, 0x025a_6919_d8f0,
    0x025d_13ee_805b, 0x0260_2503_6716, 0x0262_9645_3882, 0x0265_e0d6_2b53, 0x0268_beb7_01f3, 0x026b_9c92_265e,
    0x026d_32f7_98a9, 0x0271_5837_58eb, 0x0274_3601_673b, 0x0277_13c5_c3b0, 0x0279_f184_6e5f, 0x027c_cf3d_6761,
    0x027e_6580_aecb, 0x0282_8a9e_44b3, 0x0285_6846_2932, 0x0287_bdbf_5255, 0x028b_2384_de4a, 0x028d_13ee_805b,
    0x0290_35e9_221f, 0x0292_9645_3882, 0x0296_99bd_fb61, 0x0299_02a3_7aab, 0x029c_54b8_64c9, 0x029d_eabd_1083,
    0x02a2_0f9c_0bb5, 0x02a4_c760_5d61, 0x02a7_bdbf_5255, 0x02a9_6056_dafc, 0x02ac_3daf_14ef, 0x02af_1b01_9eca,
    0x02b2_9645_3882, 0x02b5_d022_d80f, 0x02b8_fa47_1cb3, 0x02ba_9012_e713, 0x02bd_6d49_01cc, 0x02c0_4a79_6cf6,
    0x02c3_27a4_28a6, 0x02c6_1a5e_8f4c, 0x02c8_e1e8_91f6, 0x02cb_bf02_3fc2, 0x02ce_9c16_3e6e, 0x02d1_7924_8e13,
    0x02d4_562d_2ec6, 0x02d7_3330_209d, 0x02da_102d_63b0, 0x02dc_ed24_f814,
];

/// 2⁴⁴·log₂(`x` + 1), below 2⁴⁸. `x` has 16 bits.
#[inline(always)]
pub(crate) fn crush_ln(x: u16) -> u64 {
    let x = u32::from(x) + 1;
    // Normalise to [2¹⁵, 2¹⁶]: `exponent` counts the bits shifted. Only 2¹⁶ itself has a 17th bit,
    // which stays.
    let shift = if x & 0x1_8000 == 0 {
        x.leading_zeros() - 16
    } else {
        0
    };
    let x = u64::from(x << shift);
    let exponent = u64::from(15 - shift);
    let coarse = (x >> 8) as usize - 128;
    let fine = ((x * RECIPROCAL[coarse]) >> 48) & 0xff;
    (exponent << 44) + ((COARSE[coarse] + FINE[fine as usize]) >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_nearly_the_logarithm_and_never_reaches_its_bound() {
        for x in 0..=u16::MAX {
            let (exact, found) = (
                (f64::from(x) + 1.0).log2(),
                crush_ln(x) as f64 / f64::from(1 << 22).powi(2),
            );
            assert!((exact - found).abs() < 3e-4, "{x}: {exact} {found}");
            assert!(crush_ln(x) < 1 << 48);
        }
        assert_eq!(crush_ln(0), 0);
    }

    #[test]
    fn the_tables_are_the_deployed_ones() {
        // Sums over every entry: a wrong digit anywhere is detected.
        let sum = |table: &[u64]| {
            table.iter().fold(0_u64, |sum, entry| {
                sum.wrapping_mul(31).wrapping_add(*entry)
            })
        };
        assert_eq!(sum(&RECIPROCAL), 0xcfc856a139ccb7ba);
        assert_eq!(sum(&COARSE), 0xcc05f789a0796e5d);
        assert_eq!(sum(&FINE), 0x82ec803066af7db6);
    }
}
