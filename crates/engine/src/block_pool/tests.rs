//! The pool alone: exact reuse, order of eviction, and conservation under random use.

use proptest::prelude::*;

use super::*;

fn run(start: u32, count: usize) -> Vec<u32> {
    (start..start + count as u32).collect()
}

/// Computes `tokens` as an engine would and releases them; returns how many were cached.
fn visit(pool: &mut BlockPool, tokens: &[u32]) -> usize {
    let (mut table, prefix, _) = pool.acquire(tokens);
    assert!(pool.reserve(&mut table, tokens.len()));
    pool.release(&mut table, tokens);
    prefix.tokens()
}

#[test]
fn reuse_is_exact_to_the_token() {
    let check = |first: &[u32], second: &[u32], cached: usize| {
        let mut pool = BlockPool::new(16);
        assert_eq!(visit(&mut pool, first), 0);
        assert_eq!(visit(&mut pool, second), cached, "{} then {}", first.len(), second.len());
        assert_eq!(pool.counts().used, 0);
    };
    check(&run(0, 70), &run(0, 100), 70);
    check(&run(0, 100), &run(0, 70), 69);
    check(&run(0, 64), &run(0, 64), 63);
    check(&run(0, 64), &run(0, 65), 64);
    check(&run(0, 5), &run(0, 6), 5);
    check(&run(0, 5), &run(0, 1), 0);
    check(&run(0, 100), &run(1, 100), 0);
    check(&run(0, 100), &[run(0, 40), run(500, 40)].concat(), 40);
    check(&run(0, 100), &[run(0, 32), run(500, 40)].concat(), 32);
}

#[test]
fn same_block_under_another_parent_is_not_the_same() {
    let mut pool = BlockPool::new(16);
    visit(&mut pool, &[run(0, 32), run(900, 32)].concat());
    assert_eq!(visit(&mut pool, &[run(100, 32), run(900, 32)].concat()), 0);
    assert_eq!(pool.counts().cached, 4);
}

#[test]
fn a_miss_names_the_first_differing_token() {
    let mut pool = BlockPool::new(16);
    assert_eq!(pool.explain_miss(&run(0, 9)), Some(Miss::Uncached { position: 0 }));
    visit(&mut pool, &run(0, 70));
    let mut other = run(0, 70);
    other[40] = 7;
    assert_eq!(pool.explain_miss(&other), Some(Miss::Different { position: 40, cached: 40, wanted: 7 }));
    assert_eq!(pool.explain_miss(&run(0, 90)), Some(Miss::Uncached { position: 70 }));
    assert_eq!(pool.explain_miss(&run(0, 70)), None);
}

#[test]
fn a_chain_collision_is_a_miss_not_a_mix_up() {
    let mut pool = BlockPool::new(8);
    let (honest, other) = (run(0, 33), run(100, 33));
    visit(&mut pool, &honest);
    // Pretend that both first blocks hash alike.
    let block = pool.find(Parent::Root(0), &honest[..32]).unwrap();
    let forged = pool.chain(Parent::Root(0), &other[..32]);
    pool.by_chain.insert(forged, block);
    assert_eq!(visit(&mut pool, &other), 0);
    assert_eq!(visit(&mut pool, &other), 0);
    assert_eq!(visit(&mut pool, &honest), 32);
    assert_eq!(pool.counts().used, 0);
}

#[test]
fn two_who_compute_the_same_end_up_sharing() {
    let mut pool = BlockPool::new(8);
    let tokens = run(0, 64);
    let (mut a, ..) = pool.acquire(&tokens);
    let (mut b, ..) = pool.acquire(&tokens);
    for table in [&mut a, &mut b] {
        assert!(pool.reserve(table, 65));
        pool.commit(table, &tokens);
    }
    assert_eq!(a.blocks()[..2], b.blocks()[..2]);
    assert_ne!(a.blocks()[2], b.blocks()[2]);
    assert_eq!(pool.counts(), BlockCounts { used: 4, cached: 0, free: 4 });
    pool.release(&mut a, &tokens);
    pool.release(&mut b, &tokens);
    assert_eq!(pool.counts(), BlockCounts { used: 0, cached: 2, free: 6 });
}

#[test]
fn eviction_takes_the_least_recent_and_leaves_first() {
    let mut pool = BlockPool::new(4);
    visit(&mut pool, &run(0, 64));
    visit(&mut pool, &run(100, 64));
    assert_eq!(visit(&mut pool, &run(0, 65)), 64);
    // The third block of the visit above came from the leaf of the older sequence, not from its root.
    assert_eq!(pool.lookup(&run(100, 64)).blocks, 1);
    assert_eq!(pool.lookup(&run(0, 65)).blocks, 2);
}

#[test]
fn what_is_not_in_the_kv_is_not_cached() {
    let mut pool = BlockPool::new(8);
    let (mut table, ..) = pool.acquire(&run(0, 100));
    assert!(pool.reserve(&mut table, 100));
    pool.release(&mut table, &run(0, 40));
    assert_eq!(pool.lookup(&run(0, 100)).tokens(), 40);
    assert_eq!(pool.counts(), BlockCounts { used: 0, cached: 2, free: 6 });
}

#[test]
fn every_full_block_is_handed_out_once_and_parents_first() {
    let mut pool = BlockPool::new(4);
    pool.track_unsaved();
    let (a, b) = (run(0, 100), run(500, 100));
    visit(&mut pool, &a);
    let first = pool.next_unsaved().unwrap();
    let key = Key::ROOT.child(&a[..32]);
    assert_eq!((first.depth, first.key, first.parent, &first.tokens[..]), (0, key, Key::ROOT, &a[..32]));
    let second = pool.next_unsaved().unwrap();
    assert_eq!((second.depth, second.key, second.parent), (1, key.child(&a[32..64]), key));
    // Only the third was not handed out yet; the half-full fourth never is.
    visit(&mut pool, &b);
    let evicted = pool.take_evicted();
    assert_eq!(evicted.iter().map(|block| (block.depth, &block.tokens[..])).collect::<Vec<_>>(), [(2, &a[64..96])]);
    assert!(pool.take_evicted().is_empty());
    let rest: Vec<u32> = std::iter::from_fn(|| pool.next_unsaved()).map(|block| block.depth).collect();
    assert_eq!(rest, [0, 1, 2]);
    // Seen again, nothing is new; what is known to be saved is not handed out either.
    visit(&mut pool, &b);
    assert!(!pool.has_unsaved());
    let mut table = pool.acquire(&run(900, 32)).0;
    assert!(pool.reserve(&mut table, 32));
    pool.commit(&mut table, &run(900, 32));
    pool.mark_saved(table.blocks()[0]);
    assert!(!pool.has_unsaved() && pool.next_unsaved().is_none());
}

#[derive(Clone, Debug)]
enum Move {
    Acquire { family: u32, length: usize },
    Grow { table: usize, count: usize },
    Release { table: usize, keep: usize },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let acquire = (0u32..3, 1usize..150).prop_map(|(family, length)| Move::Acquire { family, length });
    let grow = (0usize..8, 1usize..50).prop_map(|(table, count)| Move::Grow { table, count });
    let release = (0usize..8, 0usize..100).prop_map(|(table, keep)| Move::Release { table, keep });
    prop::collection::vec(prop_oneof![acquire, grow, release], 1..120)
}

/// Tokens of a family share prefixes of random length: token `i` of family `f` changes at a position that grows with
/// `f`.
fn family(family: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| if i < 40 * family { i } else { i + 1000 * family }).collect()
}

#[test]
fn owners_find_their_own_blocks_only() {
    let mut pool = BlockPool::new(8);
    let tokens: Vec<u32> = (0..70).collect();
    for owner in [1, 2] {
        let prefix = pool.lookup_of(owner, &tokens);
        assert_eq!((prefix.tokens(), prefix.partial), (0, None), "nothing was computed for {owner} yet");
        assert_eq!(prefix.miss, Some(Miss::Uncached { position: 0 }));
        let (mut table, ..) = pool.acquire_prefix(prefix, false);
        assert!(pool.reserve(&mut table, tokens.len()));
        pool.release(&mut table, &tokens);
        assert!(pool.lookup_of(owner, &tokens).tokens() >= 64);
    }
    assert_eq!(pool.lookup(&tokens).tokens(), 0);
    let roots: Vec<u32> = [1, 2].map(|owner| pool.lookup_of(owner, &tokens).path[0]).to_vec();
    assert_ne!(pool.full_block(roots[0]).key, pool.full_block(roots[1]).key, "nor are they confused on disk");
}

#[test]
fn private_blocks_are_not_saved_until_somebody_else_needs_them() {
    let mut pool = BlockPool::new(8);
    pool.track_unsaved();
    let tokens: Vec<u32> = (0..97).collect();
    let visit = |pool: &mut BlockPool, private: bool, tokens: &[u32]| {
        let (mut table, ..) = pool.acquire_prefix(pool.lookup(tokens), private);
        assert!(pool.reserve(&mut table, tokens.len()));
        pool.release(&mut table, tokens);
    };
    visit(&mut pool, true, &tokens);
    assert!(!pool.has_unsaved());
    visit(&mut pool, true, &tokens);
    assert!(!pool.has_unsaved());
    visit(&mut pool, false, &tokens[..65]);
    let depths: Vec<u32> = std::iter::from_fn(|| pool.next_unsaved()).map(|block| block.depth).collect();
    assert_eq!(depths, [0, 1], "the third is still nobody's but the private sequence's");
    // Evicted, it is not handed out either.
    let others: Vec<u32> = (1000..1000 + 8 * 32).collect();
    visit(&mut pool, true, &others);
    assert_eq!(pool.take_evicted(), []);
}

fn check_invariants(pool: &BlockPool, tables: &[(BlockTable, Vec<u32>, usize)]) {
    let counts = pool.counts();
    assert_eq!(counts.used + counts.cached + counts.free, pool.blocks.len());
    for id in 0..pool.blocks.len() as u32 {
        let block = pool.block(id);
        let holders = tables.iter().filter(|(table, ..)| table.blocks.contains(&id)).count();
        assert_eq!(block.references as usize, holders, "references of block {id}");
        assert_eq!(pool.free.contains(&id), holders == 0 && block.node.is_none());
        assert_eq!(
            pool.idle.iter().any(|&(used, other)| other == id && is_idle(block, used)),
            holders == 0 && block.node.is_some()
        );
        assert!(holders <= 1 || block.node.as_ref().is_some_and(|node| node.tokens.len() == BLOCK));
        let unsaved = block.node.as_ref().and_then(|node| node.unsaved);
        assert!(unsaved.is_none_or(|entered| pool.unsaved.get(&entered) == Some(&id)));
        if let Some(node) = &block.node {
            assert!(pool.children(node.parent).contains(&id));
            let parent = match node.parent {
                Parent::Root(_) => None,
                Parent::Block(parent) => Some(pool.block(parent)),
            };
            assert!(parent.is_none_or(|p| p.references >= block.references));
            assert!(parent.is_none_or(|p| p.references > 0 || p.last_used > block.last_used));
        }
    }
    for (table, tokens, kv_len) in tables {
        for (index, run) in tokens[..*kv_len].chunks_exact(BLOCK).enumerate().take(table.committed) {
            assert_eq!(pool.node(table.blocks[index]).tokens, run);
        }
    }
}

proptest! {
    #[test]
    fn blocks_are_conserved(moves in moves(), blocks in 1usize..24) {
        let mut pool = BlockPool::new(blocks);
        pool.track_unsaved();
        let mut tables: Vec<(BlockTable, Vec<u32>, usize)> = Vec::new();
        for step in moves {
            match step {
                Move::Acquire { family: f, length } if tables.len() < 8 => {
                    let tokens = family(f, length);
                    let (table, prefix, copy) = pool.acquire(&tokens);
                    prop_assert!(prefix.tokens() < tokens.len());
                    prop_assert!(copy.is_none_or(|copy| copy.from != copy.to));
                    tables.push((table, tokens, prefix.tokens()));
                }
                Move::Grow { table, count } if table < tables.len() => {
                    let (table, tokens, kv_len) = &mut tables[table];
                    let end = (*kv_len + count).min(tokens.len());
                    if pool.reserve(table, end) {
                        *kv_len = end;
                        pool.commit(table, &tokens[..end]);
                    }
                }
                Move::Release { table, keep } if table < tables.len() => {
                    let (mut table, tokens, kv_len) = tables.swap_remove(table);
                    let keep = kv_len.saturating_sub(keep % 8).max(table.committed_tokens());
                    pool.release(&mut table, &tokens[..keep]);
                    prop_assert!(table.blocks().is_empty());
                }
                _ => {}
            }
            check_invariants(&pool, &tables);
        }
        for (mut table, tokens, kv_len) in tables {
            pool.release(&mut table, &tokens[..kv_len]);
        }
        prop_assert_eq!(pool.available(), blocks);
    }
}
