//! Clients' data must never be taken for the store's own records.

use crate::rig::*;
use nacre_store::*;

const LENGTH: u64 = 16 << 20;
const LOG: u64 = 256 << 10;
const RING: u64 = 1 << 20;

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| {
            (c >> 1) ^ ((c & 1) * 0x82f6_3b78)
        })
    })
}

fn u64_at(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

/// Header of the newest group in the log, before this position.
fn newest(rig: &Rig, before: u64) -> Vec<u8> {
    let image = rig.device.live();
    let blocks = (0..RING).step_by(4096).map(|at| {
        let mut block = vec![0; 4096];
        image.read(LOG + at, &mut block);
        block
    });
    let headers = blocks.filter(|block| block.starts_with(b"NCWL") && u64_at(block, 16) < before);
    headers
        .max_by_key(|block| (u64_at(block, 8), u64_at(block, 16)))
        .expect("a group was written")
}

/// F3: a client that knows the format writes a block that contains a group for the log: right
/// position one lap later, right epoch, right number, right checksum. Then the power fails when the
/// log has reached it. Replay removed another client's object.
#[test]
fn a_group_in_somebodys_payload_is_never_replayed() {
    let mut rig = Rig::open(Rig::format(LENGTH), &in_place(), 1);
    rig.must(Transaction::new().create_collection(C), 0);
    rig.must(Transaction::new().touch(key("victim")), 1);
    rig.must(Transaction::new().write(key("evil"), 0, vec![1; 8192]), 2);
    rig.settle();
    let mut token = 2;
    let mut step = |rig: &mut Rig, t: Transaction| {
        token += 1;
        rig.must(t, token);
        rig.settle();
    };
    // Its form in the log: the length of the records before the payload.
    step(
        &mut rig,
        Transaction::new().write(key("evil"), 0, vec![2; 8192]),
    );
    let group = newest(&rig, u64::MAX);
    let (position, first) = (u64_at(&group, 16), u64_at(&group, 24));
    let records = u32::from_le_bytes(group[32..36].try_into().expect("four bytes")) as usize;
    let length = (64 + records + 8192).next_multiple_of(4096) as u64;
    assert_eq!(length, 12_288);

    let lap = position + length + 4096 + RING;
    let fillers = (lap - (position + 2 * length)) / 4096;
    let mut forged = group[..64].to_vec();
    forged[16..24].copy_from_slice(&lap.to_le_bytes());
    forged[24..32].copy_from_slice(&(first + 2 + fillers).to_le_bytes());
    let head = [&[0x10][..], &C.0.to_be_bytes(), b"victim"].concat();
    let mut change = Vec::new();
    change.extend_from_slice(&1000_u64.to_le_bytes());
    (0..3).for_each(|_| change.extend_from_slice(&0_u32.to_le_bytes()));
    change.extend_from_slice(&1_u32.to_le_bytes());
    change.extend_from_slice(&(head.len() as u32).to_le_bytes());
    change.extend_from_slice(&head);
    change.extend_from_slice(&u32::MAX.to_le_bytes());
    (0..2).for_each(|_| change.extend_from_slice(&0_u32.to_le_bytes()));
    let records_forged = [&(change.len() as u32).to_le_bytes()[..], &change].concat();
    forged[32..36].copy_from_slice(&(records_forged.len() as u32).to_le_bytes());
    forged[36..40].fill(0);
    // Everything that a client can know: not the salt that was chosen when the store was opened.
    forged[40..64].fill(0);
    let crc = crc32c(&[&forged[..], &records_forged].concat());
    forged[56..60].copy_from_slice(&crc.to_le_bytes());
    let mut payload = vec![0; 8192];
    let at = 4096 - 64 - records;
    payload[at..at + 64].copy_from_slice(&forged);
    payload[at + 64..at + 64 + records_forged.len()].copy_from_slice(&records_forged);

    step(&mut rig, Transaction::new().write(key("evil"), 0, payload));
    for n in 0..fillers {
        step(
            &mut rig,
            Transaction::new().set_attr(key("filler"), "n", n.to_string()),
        );
    }
    let last = newest(&rig, lap);
    assert_eq!(u64_at(&last, 16) + 4096, lap, "the log has come to it");
    assert_eq!(u64_at(&last, 24) + 1, first + 2 + fillers);
    let mut after = Rig::from_image(LENGTH, rig.device.live());
    assert!(
        matches!(
            after.ask(Read::Stat(key("victim"))),
            Ok(ReadReply::Stat(Some(_)))
        ),
        "the victim is there"
    );
}
