//! A run of quads.

use memra_ledger::judge::order_text;
use memra_ledger::record::{Block, Slots, VoidQuad};
use memra_ledger::stats::{ArmLabel, QuadOrder};

use crate::observe::observe_quads;
use crate::runner::{ArmError, Runner, Seat};

/// Runs the quads of a block: `x` where an order says A, `y` where it says B, `launches` launches in every slot.
///
/// The machine is observed before the first quad and after each. A quad in which an arm was not idle in another's slot is
/// void and blamed on that arm, as far as it sits on one of the two seats; such arms are forgotten first, so that only what
/// happens inside the block counts. `after_quad` is told how many quads are over, outside of
/// any timed span. The block's start is the first observation.
///
/// # Errors
///
/// [`ArmError`] of the first slot that could not run.
pub fn run_block(
    runner: &mut dyn Runner,
    orders: &[QuadOrder],
    x: Seat,
    y: Seat,
    launches: u32,
    after_quad: &mut dyn FnMut(usize),
) -> Result<Block, ArmError> {
    let mut slots = Slots { gap_ns: Vec::new(), elapsed_ns: Vec::new() };
    let mut not_idle = Vec::new();
    runner.not_idle();
    let mut boundaries = vec![runner.observe()];
    let mut last_end_ns = boundaries[0].at_ns;
    for (index, order) in orders.iter().enumerate() {
        for arm in order.arms() {
            let seat = match arm {
                ArmLabel::A => x,
                ArmLabel::B => y,
            };
            runner.prepare(seat)?;
            let time = runner.slot(seat, launches)?;
            slots.gap_ns.push(time.start_ns.saturating_sub(last_end_ns));
            slots.elapsed_ns.push(time.elapsed_ns);
            last_end_ns = time.start_ns.saturating_add(time.elapsed_ns);
        }
        boundaries.push(runner.observe());
        let busy = runner.not_idle();
        if let Some(seat) = busy.first() {
            // Of several the first found is named; one is enough for the quad not to count.
            let blamed = [(x, "A"), (y, "B")].into_iter().find_map(|(sits, arm)| (sits == *seat).then_some(arm));
            not_idle.push((index as u32, blamed));
        }
        after_quad(index + 1);
    }
    let (observed, mut void) = observe_quads(&boundaries);
    for (quad, blamed) in not_idle {
        // What an arm did is the better reason than what the machine did.
        void.retain(|void| void.quad != quad);
        void.push(VoidQuad { quad, reason: "foreign".to_owned(), blamed: blamed.map(str::to_owned) });
    }
    void.sort_by_key(|void| void.quad);
    Ok(Block { order: order_text(orders), slots, observed, void })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Burst, FakeRunner, Script};
    use memra_ledger::judge::block_orders;

    #[test]
    fn slots_stand_in_the_order_they_ran() {
        // B takes e times as long as A, the twin half.
        let script =
            Script { launch_ns: 1_000.0, b: 1.0, twin: -std::f64::consts::LN_2, gap_ns: 500, ..Script::default() };
        let mut runner = FakeRunner::new(script);
        let orders = [QuadOrder::Abba, QuadOrder::Baab];
        let mut seen = Vec::new();
        let mut after = |quads| seen.push(quads);
        let block = run_block(&mut runner, &orders, Seat::A, Seat::B, 1_000, &mut after).unwrap();
        let (a, b) = (1_000_000, 2_718_282);
        assert_eq!(block.order, "AB");
        assert_eq!(block.slots.elapsed_ns, [a, b, b, a, b, a, a, b]);
        assert_eq!(block.slots.gap_ns, [500; 8]);
        assert_eq!((block.observed.len(), block.void.len()), (2, 0));
        assert_eq!(seen, [1, 2]);
        let block = run_block(&mut runner, &orders[..1], Seat::A, Seat::Twin, 10, &mut |_| {}).unwrap();
        assert_eq!(block.slots.elapsed_ns, [10_000, 5_000, 5_000, 10_000]);
        memra_ledger::judge::block_quads(&block).unwrap();
    }

    #[test]
    fn stolen_time_voids_quads_of_the_block() {
        let burst = Burst { from_ns: 300_000_000, to_ns: 500_000_000, share: 0.4 };
        let script = Script { launch_ns: 1_000.0, steal: vec![burst], ..Script::default() };
        let orders = block_orders(3, 0, 200).unwrap();
        let block = run_block(&mut FakeRunner::new(script), &orders, Seat::A, Seat::B, 1_250, &mut |_| {}).unwrap();
        assert!(!block.void.is_empty() && block.void.len() < 70, "{}", block.void.len());
        assert!(block.void.iter().all(|void| void.reason == "steal" && void.blamed.is_none()));
        assert!(block.void.iter().all(|void| block.observed[void.quad as usize].steal_ppm > Some(50_000)));
        memra_ledger::judge::block_quads(&block).unwrap();
    }

    #[test]
    fn an_arm_that_is_not_idle_is_blamed_for_its_quads() {
        let script = Script { busy: vec![(5, Seat::B), (6, Seat::A), (16, Seat::Twin)], ..Script::default() };
        let mut runner = FakeRunner::new(script);
        let orders = [QuadOrder::Abba; 5];
        // A slot before the block is none of its business.
        runner.slot(Seat::A, 1).unwrap();
        let block = run_block(&mut runner, &orders, Seat::A, Seat::B, 25, &mut |_| {}).unwrap();
        let void = |quad, blamed: Option<&str>| VoidQuad {
            quad,
            reason: "foreign".to_owned(),
            blamed: blamed.map(str::to_owned),
        };
        assert_eq!(block.void, [void(1, Some("B")), void(3, None)]);
        memra_ledger::judge::block_quads(&block).unwrap();
        // In an A/A block the twin stands for B, and windows that are void already keep one reason.
        let steal = vec![Burst { from_ns: 0, to_ns: u64::MAX, share: 0.5 }];
        let mut runner = FakeRunner::new(Script { busy: vec![(8, Seat::Twin)], steal, ..Script::default() });
        let block = run_block(&mut runner, &orders, Seat::A, Seat::Twin, 500, &mut |_| {}).unwrap();
        assert_eq!(block.void.len(), 5);
        assert_eq!(block.void[2], void(2, Some("B")));
        assert_eq!(block.void[3].reason, "steal");
    }

    #[test]
    fn an_arm_that_fails_ends_the_block_with_its_name() {
        let script = Script { fails_after: Some(6), ..Script::default() };
        let orders = [QuadOrder::Abba; 3];
        let error = run_block(&mut FakeRunner::new(script), &orders, Seat::A, Seat::B, 1, &mut |_| {}).unwrap_err();
        assert!(error.to_string().starts_with("arm `fake B`"), "{error}");
    }
}
